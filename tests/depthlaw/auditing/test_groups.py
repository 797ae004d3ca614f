"""``audit --groups``: right parameter groups of the user's optimizer and their wrong twins, each with one mistake."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import depthlaw
from depthlaw.auditing.audit import Audit, audit
from depthlaw.theory.schemes import SCHEMES
from tests.command import depthlaw as run
from tests.command import document, refusal
from tests.depthlaw.auditing.transformer import Build, Shape, transformer, xavier
from tests.often import often

LAYERS = (2, 4)
LR, EPS, DECAY = 1e-3, 1e-8, 0.1
BUILDS: dict[str | None, Build] = {
    "depth-mup": transformer(Shape(branch_weight=lambda at: (2 * at.num_layers) ** -0.5), xavier),
    "completep": transformer(Shape(branch_weight=lambda at: 1 / at.num_layers), xavier),
    "pre-ln": transformer(Shape(), xavier),
}
BUILDS[None] = BUILDS["pre-ln"]
BRANCH = ["q", "k", "v", "out", "fc1", "fc2", "bias", "norm_gain", "norm_bias"]


def depth_of(model: Any) -> int:
    return len(model.stack.blocks)


def groups(
    model: Any, scheme: str | None, *, scales_rates: bool = True, scales_eps: bool = True, decays_vectors: bool = False
) -> list[dict[str, Any]]:
    """A group for each parameter, by the scheme's formulas written by hand."""
    number = depth_of(model)
    rate = {"depth-mup": number**-0.5}.get(scheme or "", 1.0) if scales_rates else 1.0
    small = {"depth-mup": number**-0.5, "completep": 1 / number}.get(scheme or "", 1.0) if scales_eps else 1.0
    found = []
    for name, parameter in model.named_parameters():
        is_branch = ".blocks." in name
        decay = DECAY if decays_vectors or (parameter.ndim > 1 and "embedding" not in name) else 0.0
        own = {"lr": LR * (rate if is_branch else 1), "eps": EPS * (small if is_branch else 1), "weight_decay": decay}
        found.append({"params": [parameter], "name": name, **own})
    return found


def of(scheme: str | None, make: Callable[[Any], Any], layers: Sequence[int] = LAYERS) -> Audit:
    return audit(BUILDS[scheme], layers, scheme=scheme, groups=make, measures=False, has_nearest=False)


# ---------------------------------------------------------------- right ones


@cache
def printed(scheme: str, num_layers: int) -> dict[str, Any]:
    """What the code defines that ``advise`` prints for the deeper model, with this model's names put in."""
    advice = depthlaw.advise(
        scheme=scheme, optimizer="adamw", from_layers=LAYERS[0], layers=num_layers, width=32, num_tokens=4
    )
    lines = "\n".join(advice.code(advice.named("nothing"))).replace('"gate_proj"', '"gate_proj", "up_proj"')
    code: dict[str, Any] = {}
    exec(compile(lines, "printed", "exec"), code)
    return code


def by_printed_code(scheme: str) -> Callable[[Any], Any]:
    def make(model: Any) -> Any:
        if (number := depth_of(model)) == LAYERS[0]:
            return groups(model, None)
        return torch.optim.AdamW(printed(scheme, number)["param_groups"](model, lr=LR, eps=EPS, weight_decay=DECAY))

    return make


def by_initialise(scheme: str) -> Callable[[Any], Any]:
    return lambda model: depthlaw.initialise(model, scheme=scheme).param_groups(LR, eps=EPS)


def in_two_optimizers(model: Any) -> Any:
    """Muon for the matrices of branches, whose own eps is of another kind, and AdamW."""
    own = groups(model, "depth-mup")
    in_muon = [".blocks." in one["name"] and one["params"][0].ndim == 2 for one in own]
    muon = [{**one, "eps": 1e-7} for one, is_in in zip(own, in_muon, strict=True) if is_in]
    return torch.optim.Muon(muon), torch.optim.AdamW([o for o, is_in in zip(own, in_muon, strict=True) if not is_in])


def warming_up(model: Any) -> Any:
    """A schedule that begins at a hundredth: the group's own rate counts."""
    made = torch.optim.AdamW(groups(model, "depth-mup"))
    torch.optim.lr_scheduler.LinearLR(made, start_factor=0.01)
    return made


RIGHT: dict[str, tuple[str | None, Callable[[Any], Any]]] = {
    "depth-mup as advise prints it": ("depth-mup", by_printed_code("depth-mup")),
    "completep as advise prints it": ("completep", by_printed_code("completep")),
    "depth-mup as initialise has it": ("depth-mup", by_initialise("depth-mup")),
    "completep as initialise has it": ("completep", by_initialise("completep")),
    "depth-mup by hand": ("depth-mup", lambda model: torch.optim.AdamW(groups(model, "depth-mup"))),
    "two optimizers": ("depth-mup", in_two_optimizers),
    "a schedule": ("depth-mup", warming_up),
    "a scheme that says nothing of rates": ("pre-ln", lambda model: groups(model, "depth-mup")),
    "no scheme": (None, lambda model: groups(model, None)),
}


@pytest.mark.parametrize("name", often(RIGHT, 2))
def test_right_groups_are_not_accused(name: str) -> None:
    found = of(*RIGHT[name])
    assert not found.faults
    assert not any(words in remark for remark in found.remarks for words in ("vectors have", "different learning"))


@pytest.mark.wide
def test_a_scheme_with_rates_of_its_own_is_not_said_to_want_others() -> None:
    """The update is measured at one rate for all: its growth is what the scheme's own rates are for."""
    said = {
        scheme: " ".join(str(audit(BUILDS[scheme], LAYERS, scheme=scheme, has_nearest=False)).split())
        for scheme in ("depth-mup", "pre-ln")
    }
    assert "depth-mup has learning rates of its own" in said["depth-mup"]
    assert "may still need another learning rate" in said["pre-ln"]
    assert "of its own" not in said["pre-ln"] and "may still need" not in said["depth-mup"]


# ---------------------------------------------------------------- wrong ones


def without_head(model: Any) -> Any:
    return [one for one in groups(model, "depth-mup") if "head" not in one["name"]]


def one_twice(model: Any) -> Any:
    own = groups(model, "depth-mup")
    return torch.optim.AdamW(own), torch.optim.SGD([{"params": own[3]["params"], "lr": own[3]["lr"]}])


def with_a_copy(model: Any) -> Any:
    """The embedding is made anew behind the optimizer, as by a resize: the old one is in it, the new one is not."""
    made = torch.optim.AdamW(groups(model, "depth-mup"))
    model.stack.embedding.weight = nn.Parameter(model.stack.embedding.weight.detach().clone())
    return made


def one_layer_left_out(model: Any) -> Any:
    """The first layer's output matrices have the rate of the embedding."""
    own = groups(model, "depth-mup")
    return [one | ({"lr": LR} if "blocks.0.ffn.branch.down_proj.weight" in one["name"] else {}) for one in own]


def scaled_head(model: Any) -> Any:
    own = groups(model, "depth-mup")
    return [one | ({"lr": LR / depth_of(model)} if "head" in one["name"] else {}) for one in own]


WRONG: dict[str, tuple[str | None, Callable[[Any], Any], dict[str, list[str]]]] = {
    "head forgotten": ("depth-mup", without_head, {"no-group": []}),
    "a parameter twice": ("depth-mup", one_twice, {"two-groups": []}),
    "a copy of one": ("depth-mup", with_a_copy, {"no-group": [], "stale-group": []}),
    "rates not scaled": (
        "depth-mup",
        lambda model: torch.optim.AdamW(groups(model, "depth-mup", scales_rates=False)),
        {"group-rate": BRANCH},
    ),
    "eps not scaled": ("completep", lambda model: groups(model, "completep", scales_eps=False), {"group-eps": BRANCH}),
    "rates scaled that are not to be": (
        "completep",
        lambda model: [
            one | {"eps": eps["eps"]}
            for one, eps in zip(groups(model, "depth-mup"), groups(model, "completep"), strict=True)
        ],
        {"group-rate": BRANCH},
    ),
    "one layer left out": ("depth-mup", one_layer_left_out, {"group-rate": ["fc2"]}),
    "the head scaled": ("depth-mup", scaled_head, {"group-rate": ["head"]}),
    "no scheme, head forgotten": (None, without_head, {"no-group": []}),
}


@cache
def of_wrong(name: str) -> Audit:
    scheme, make, _ = WRONG[name]
    return of(scheme, make)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_groups_are_found_and_named(name: str) -> None:
    assert {fault.kind: [*fault.roles] for fault in of_wrong(name).faults} == WRONG[name][-1]


def test_a_fault_says_which_tensors_and_what_they_should_have() -> None:
    (fault,) = of_wrong("head forgotten").faults
    assert fault.where == ("lm_head.weight",)
    (fault,) = of_wrong("one layer left out").faults
    assert fault.where == ("stack.blocks.0.ffn.branch.down_proj.weight",)
    assert fault.found == "learning rate 0.0007071 to 0.001 at 2 layers, 0.0005 to 0.001 at 4 layers"
    (fault,) = of_wrong("eps not scaled").faults
    assert (fault.found, fault.fix) == ("epsilon 1e-08 at every depth", 'group["eps"] = 2e-08/num_layers')
    assert fault.expected == "epsilon 1e-08 at 2 layers, 5e-09 at 4 layers"
    _, stale = sorted(of_wrong("a copy of one").faults, key=lambda fault: fault.kind)
    assert stale.found == "of 64 x 32"


def test_rates_that_differ_between_roles_are_remarked() -> None:
    def make(model: Any) -> Any:
        own = groups(model, "depth-mup")
        return [one | {"lr": one["lr"] / 2} if "up_proj.weight" in one["name"] else one for one in own]

    found = of("depth-mup", make)
    assert not found.faults
    (remark,) = (remark for remark in found.remarks if "different learning rates" in remark)
    assert "0.00025 of fc1; 0.0005 of q, k, v, out and fc2; depth-mup gives all of them one" in remark


def test_weight_decay_of_vectors_and_of_the_embedding_is_remarked() -> None:
    found = of("depth-mup", lambda model: groups(model, "depth-mup", decays_vectors=True))
    assert not found.faults
    embedding, vectors = (remark for remark in found.remarks if "weight decay" in remark)
    assert embedding.startswith("the embedding (stack.embedding.weight) has weight decay, 0.1")
    assert "bias (24), norm_gain (8), norm_bias (8) and final_norm (2)" in vectors


def test_tied_parameters_count_once() -> None:
    build = transformer(Shape(is_tied=True), xavier)
    made = torch.optim.AdamW
    found = audit(build, 2, groups=lambda model: made(model.parameters()), measures=False, has_nearest=False)
    assert not any(fault.kind == "two-groups" for fault in found.faults)
    assert found.groups is not None
    (row,) = (row for row in found.groups if row["role"] == "embedding")
    assert row["num_tensors"] == 1 and not any("the embedding (" in remark for remark in found.remarks)


def test_what_is_not_trained_may_be_in_no_group() -> None:
    def build(num_layers: int) -> nn.Module:
        model = BUILDS[None](num_layers)
        model.get_parameter("stack.embedding.weight").requires_grad_(False)
        return model

    def trained(model: Any) -> Any:
        return [one for one in groups(model, None) if one["params"][0].requires_grad]

    found = audit(build, 2, groups=trained, measures=False, has_nearest=False)
    assert not any(fault.kind == "no-group" for fault in found.faults)


def test_groups_are_compared_under_the_optimizer_of_the_audit() -> None:
    """depth-mup leaves SGD's rates alone: scaled ones are wrong there."""
    found = audit(
        BUILDS["depth-mup"],
        LAYERS,
        scheme="depth-mup",
        optimizer="sgd",
        groups=lambda model: torch.optim.AdamW(groups(model, "depth-mup")),
        measures=False,
    )
    assert [fault.kind for fault in found.faults] == ["group-rate"]
    assert any(remark.startswith("the groups are of AdamW, and what is expected") for remark in found.remarks)


def test_initialise_gives_all_of_the_branches_the_scheme_s_rate() -> None:
    model: Any = BUILDS["depth-mup"](8)
    told = depthlaw.initialise(model, scheme="depth-mup")
    in_branch = {name for name, _ in model.named_parameters() if ".blocks." in name}
    assert told.rates == pytest.approx(dict.fromkeys(in_branch, 0.25)) and told.eps == pytest.approx(told.rates)
    assert [(one["lr"], one["eps"]) for one in told.param_groups(1.0, eps=1.0)] == [(0.25, 0.25), (1.0, 1.0)]


def test_a_scheme_s_multipliers_are_those_of_its_networks() -> None:
    """What groups are compared with, what networks are trained with and what advise prints are one."""
    told = of("depth-mup", lambda model: groups(model, "depth-mup"))
    assert told.groups is not None
    rows = {row["role"]: row for row in told.groups}
    rates = rows["fc2"]["learning_rate_multiplier"]
    assert rates == pytest.approx([(2 * number) ** -0.5 for number in LAYERS])
    assert [printed("depth-mup", number)["RATES"]["fc2"] for number in LAYERS[1:]] == pytest.approx(
        [rate / rates[0] for rate in rates[1:]], rel=1e-2
    )
    assert rows["head"]["learning_rate_multiplier"] == [1.0] * 2
    assert {name for name, one in SCHEMES.items() if one.eps_multiplier != 1} == {"depth-mup", "completep"}


# ---------------------------------------------------------------- the command

SOURCE = """
import torch
from torch import nn


def build(num_layers):
    layer = nn.TransformerEncoderLayer(32, 4, 64, norm_first=True, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(32), enable_nested_tensor=False)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.1)
    return model


kept = build(1)


def whole(model):
    print("made")
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)


def parts(model):
    return torch.optim.AdamW(model.layers.parameters(), lr=1e-3)


def failing(model):
    return torch.optim.AdamW(model.parameters(), lr=-1)


def of_another(model):
    return torch.optim.AdamW(kept.parameters())


def number(model):
    return 3


def named(model):
    return [{"params": ["layers.0"]}]


def ending(model):
    raise SystemExit(3)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own, by another name in each test."""
    monkeypatch.chdir(tmp_path)
    name = f"own_groups_{tmp_path.name}"
    Path(f"{name}.py").write_text(SOURCE, encoding="utf-8")
    return name


def test_the_command_takes_a_module_or_a_file_and_fails_where_a_tensor_is_forgotten(place: str) -> None:
    asked = ("audit", f"{place}:build", "--layers", "1,2", "--seeds", "1", "--scheme", "pre-ln")
    answer = run(*asked, "--groups", f"{place}:whole", "--json")
    found = json.loads(answer.stdout)
    assert (answer.returncode, answer.stderr.strip()) == (0, "made\nmade")
    assert found["faults"] == [] and found["groups"]["optimizers"] == ["AdamW"]
    rows = {row["role"]: row for row in found["groups"]["roles"]}
    assert rows["fc2"] == {
        "role": "fc2",
        "num_tensors": 2,
        "learning_rate": [[LR], [LR]],
        "eps": [[EPS], [EPS]],
        "weight_decay": [[0.0], [0.0]],
        "learning_rate_multiplier": None,
        "eps_multiplier": None,
    }
    answer = run(*asked, "--groups", f"{place}.py:parts", COLUMNS="100")
    assert answer.returncode == 1
    said = " ".join(answer.stdout.split())
    assert "1. Parameters that are trained are in no group of the optimizer" in said and "where: norm.weight" in said
    assert "The parameter groups of AdamW" in said and "│ final_norm │ 2 │ - │ - │ - │" in said
    assert document(*asked)["groups"] is None


def test_the_audit_of_pyproject_has_groups(place: str) -> None:
    lines = f'factory = "{place}.py:build"\nlayers = [1]\nscheme = "pre-ln"\nseeds = 1\ngroups = "{place}.py:parts"\n'
    Path("pyproject.toml").write_text(f"[tool.depthlaw.audit]\n{lines}", encoding="utf-8")
    assert '"no-group"' in run("audit", "--json").stdout


REFUSED = {
    "{}:failing": "--groups failed: ValueError: Invalid learning rate: -1",
    "{}:of_another": "--groups: what it answers has parameters of another model",
    "{}:number": "--groups answered something of type int",
    "{}:named": "--groups: the params of a group have something of type str, no tensor",
    "{}:nothere": "--groups: {} has no nothere",
    "{}:ending": "your own code ended the program",
    "{}": "--groups is MODULE:NAME",
    "nothere.py:make": "there is no file nothere.py",
}


@pytest.mark.parametrize("given", REFUSED)
def test_refused_in_one_line(given: str, place: str) -> None:
    line = refusal("audit", f"{place}:build", "--layers", "1", "--seeds", "1", "--groups", given.format(place))
    assert REFUSED[given].format(place) in line
