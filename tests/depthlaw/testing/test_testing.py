"""The audit in continuous integration: what fails and what does not, and the files that tell it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from depthlaw.auditing.audit import audit
from depthlaw.testing import assert_depth_law
from depthlaw.testing.baseline import Baseline
from depthlaw.testing.outcome import Outcome, reasons
from depthlaw.testing.reports import Place, markdown_of, sarif_of
from tests.command import depthlaw, document, refusal

SOURCE = """
import torch
from torch import nn


def build(num_layers, scale=1.0):
    layer = nn.TransformerEncoderLayer(32, 4, 64, norm_first=True, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers, FINAL, enable_nested_tensor=False)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=SCALE * 0.1)
    return model
"""
CONFIG = """
[tool.depthlaw.audit]
factory = "mymodel:build"
layers = [1, 2]
scheme = "pre-ln"
seeds = 1
"""


def builder(scale: float = 1.0, final: bool = True, width: int = 32) -> Any:
    def build(num_layers: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(width, 4, 64, norm_first=True, batch_first=True)
        norm = nn.LayerNorm(width) if final else None
        model = nn.TransformerEncoder(layer, num_layers, norm, enable_nested_tensor=False)
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.1 * (scale if "linear2" in name else 1))
        return model

    return build


def of(build: Any, **options: Any) -> Any:
    return audit(build, (1, 2), scheme="pre-ln", measures=False, **options)


# ---------------------------------------------------------------- the assertion


def test_a_model_as_its_scheme_says_passes_and_another_fails_in_the_audit_s_words() -> None:
    assert_depth_law(builder(), scheme="pre-ln", layers=(1, 2))
    with pytest.raises(AssertionError) as error:
        assert_depth_law(builder(final=False), scheme="pre-ln", layers=(1, 2))
    (fault,) = of(builder(final=False)).faults
    text = str(error.value)
    assert text.startswith("TransformerEncoder of 1, 2 layers under adamw, compared with pre-ln: 1 fault\n")
    kind = f"kind: {fault.kind}"  # by which it may be ignored
    assert all(part in text for part in (fault.what, fault.found, fault.expected, kind, *fault.fix.splitlines()))


def test_what_is_ignored_does_not_count_and_needs_a_reason() -> None:
    assert_depth_law(builder(final=False), scheme="pre-ln", layers=(1, 2), ignore={"norms": "in our head"})
    found = Outcome.of(of(builder(final=False)), ignore={"norms": "in our head", "head": "x"})
    assert found.is_fine and found.remarks == [
        "Ignored (norms): No norm stands behind the last sublayer, before the head. The reason: in our head",
        "Nothing is ignored: no fault is of the kind head (there are norms).",
    ]
    for text in ("norms", "norms=", "=because"):
        with pytest.raises(ValueError, match="--ignore is KIND=reason"):
            reasons([text])


# ---------------------------------------------------------------- the baseline


def test_another_draw_is_no_change_and_another_scale_is(tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    Outcome.of(of(builder())).baseline.write(path)
    accepted = Baseline.read(path)
    for seed in range(1, 4):
        assert accepted.changes(of(builder(), seed=seed)) == []
    assert_depth_law(builder(), scheme="pre-ln", layers=(1, 2), baseline=path)
    with pytest.raises(AssertionError, match=r"Changed since it was accepted: fc2 starts at 0\.1[3-7]; 0\.1 was"):
        assert_depth_law(builder(1.5), scheme="pre-ln", layers=(1, 2), baseline=path)
    assert accepted.changes(of(builder(final=False)))[0] == (
        "The final norm is another than was accepted (1 layers, 2 layers)."
    )


@pytest.mark.parametrize("table", ["uneven", pytest.param("heavy", marks=pytest.mark.wide)])
def test_another_draw_of_uneven_entries_is_no_change(table: str, tmp_path: Path) -> None:
    """Few large entries beside many small ones, and entries with heavy tails: their sizes scatter by more than those of
    normal entries."""

    class Model(nn.Module):
        def __init__(self, num_layers: int, scale: float) -> None:
            super().__init__()
            self.first, self.second, self.stack = nn.Embedding(16, 32), nn.Embedding(16, 32), builder()(num_layers)
            values = [self.first.weight.data, self.second.weight.data]
            if table == "uneven":
                values[0].mul_(0.01)
                values[1].zero_()[:, 0] = 10 * torch.randn(16)
            else:
                for value in values:
                    value.normal_().exp_()
            for value in values:
                value.mul_(scale)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.stack(self.first(ids) + self.second(ids))

    def draw(seed: int, scale: float = 1.0) -> Any:
        return of(lambda num_layers: Model(num_layers, scale), seed=seed)

    path = tmp_path / "accepted.json"
    Outcome.of(draw(0)).baseline.write(path)
    accepted = Baseline.read(path)
    assert [accepted.changes(draw(seed)) for seed in range(1, 9)] == [[]] * 8
    assert any(line.startswith("embedding starts at") for line in accepted.changes(draw(1, 10.0)))


def test_a_baseline_of_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    Outcome.of(of(builder())).baseline.write(path)
    path.write_text(re.sub(r',\s*"scatter": [-e.\d]+', "", path.read_text(encoding="utf-8")), encoding="utf-8")
    assert "scatter" not in path.read_text(encoding="utf-8")
    accepted = Baseline.read(path)
    assert accepted.changes(of(builder(), seed=1)) == []
    assert accepted.changes(of(builder(1.5)))


def test_a_fault_that_was_accepted_does_not_count_and_a_new_one_does(tmp_path: Path) -> None:
    before = of(builder(final=False))
    accepted = Outcome.of(before).baseline
    again = Outcome.of(before, baseline=accepted)
    assert again.is_fine and [fault.kind for fault in again.accepted] == ["norms"]
    new = Outcome.of(before, baseline=Outcome.of(of(builder())).baseline)
    assert not new.is_fine and [fault.kind for fault in new.faults] == ["norms"]


def test_depths_that_were_not_accepted_are_refused() -> None:
    accepted = Outcome.of(of(builder())).baseline
    with pytest.raises(ValueError, match="the baseline is of 1, 2 layers, and none of these is audited"):
        accepted.changes(audit(builder(), (3,), scheme="pre-ln", measures=False))


def accepted_with(**words: Any) -> str:
    return json.dumps({"kind": "depthlaw-baseline", **words})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{\n "kind": "depthlaw-baseline",\n<<<<<<< HEAD', "is no JSON, .*: key must be a string at line 3 column 1"),
        ("[" * 10_000, "is no JSON, .*: recursion limit exceeded at line 1 "),
        ("[]", r"is no baseline of depthlaw audit \(allowed: what --accept writes\)"),
        (accepted_with(version=2), "json: version is 2; allowed is 1"),
        (
            accepted_with(module="G", models={"two": {}}),
            r"json: models.two.\[key\] is 'two'; allowed is a whole number",
        ),
        (accepted_with(module="G", models={}), "json: faults is missing"),
        (accepted_with(module="G", models={}, faults={}), "json: faults is {}; allowed is a list"),
        (accepted_with(module="G", models={}, faults=[], more=1), "json: there is no key more"),
    ],
)
def test_what_is_no_baseline_is_refused_in_one_line(content: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=line) as error:
        Baseline.read(path)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- pages


def test_reports_have_each_fault_with_its_place() -> None:
    build = builder(final=False)
    outcome = Outcome.of(of(build))
    (fault,) = outcome.faults
    page = markdown_of([outcome])
    assert f"1. **{fault.what}**" in page and f"expected: {fault.expected}" in page and "```python" in page
    found = sarif_of([(outcome, Place.of(build))])
    (result,) = found["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("norms", "error") and fault.what in result["message"]["text"]
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"].endswith("testing/test_testing.py")
    assert where["region"]["startLine"] == build.__code__.co_firstlineno
    (result,) = sarif_of([(outcome, Place("my models/gpt.py", 3))])["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my%20models/gpt.py"
    ignored = Outcome.of(of(build), ignore={"norms": "in our *head*"})
    (result,) = sarif_of([(ignored, None)])["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "external", "justification": "in our *head*"}]
    assert "in our \\*head\\*" in markdown_of([ignored])


# ---------------------------------------------------------------- the command, and pyproject.toml


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of the user's, whose module is its own."""
    name = f"mymodel_{tmp_path.name}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", (4,))
    source = SOURCE.replace("FINAL", "nn.LayerNorm(32)").replace("SCALE", "1")
    Path(f"{name}.py").write_text(source, encoding="utf-8")
    Path("pyproject.toml").write_text(CONFIG.replace("mymodel", name), encoding="utf-8")
    return tmp_path


def configure(more: str) -> None:
    path = Path("pyproject.toml")
    path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")


def test_audit_without_arguments_is_that_of_pyproject(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder below it, too; an option of the command line counts first."""
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    found = document("audit")
    assert (found["layers"], found["scheme"], found["optimizer"], found["faults"]) == ([1, 2], "pre-ln", "adamw", [])
    assert document("audit", "--layers", "1")["layers"] == [1]
    assert refusal("audit", "--recipe", "gpt").startswith("depthlaw: --recipe: unknown recipe 'gpt'")  # not of the file


def test_the_command_accepts_a_baseline_and_fails_where_it_has_changed(here: Path) -> None:
    configure('baseline = "accepted.json"\n')
    assert "accepted.json; --accept writes it" in refusal("audit", "--groups", "not_measured:before_this")
    assert depthlaw("audit", "--accept").returncode == 0
    answer = depthlaw("audit", "--markdown", "page.md", "--sarif", "it.sarif", "--json")
    assert answer.returncode == 0 and json.loads(answer.stdout)["changes"] == []
    assert Path("page.md").read_text(encoding="utf-8").startswith("### depthlaw: TransformerEncoder of 1, 2 layers")
    assert json.loads(Path("it.sarif").read_text(encoding="utf-8"))["runs"][0]["results"] == []
    kept = json.loads(Path("accepted.json").read_text(encoding="utf-8"))
    kept["models"]["2"]["sublayers"][1]["weights"]["fc2"]["size"] *= 2
    Path("accepted.json").write_text(json.dumps(kept), encoding="utf-8")
    answer = depthlaw("audit", "--markdown", "page.md")
    assert answer.returncode == 1
    said = " ".join(answer.stdout.split())
    heading = Path("page.md").read_text(encoding="utf-8").splitlines()[0]
    assert all("no faults, but 1 change since it was accepted" in text for text in (said, heading))
    assert re.search(r"fc2 starts at 0\.[\d]+; 0\.[12]\d* was accepted \(encoder sublayer 2 of 2 layers\)", said)


def test_faults_fail_but_for_those_that_are_ignored(here: Path) -> None:
    (path,) = here.glob("mymodel*.py")
    path.write_text(SOURCE.replace("FINAL", "None").replace("SCALE", "1"), encoding="utf-8")
    assert depthlaw("audit").returncode == 1
    answer = depthlaw("audit", "--ignore", "norms=in our head, which is elsewhere", "--json")
    found = json.loads(answer.stdout)
    assert answer.returncode == 0 and found["faults"] == []
    assert [one["reason"] for one in found["ignored"]] == ["in our head, which is elsewhere"]
    configure('ignore = { norms = "in our head" }\n')
    answer = depthlaw("audit")
    assert answer.returncode == 0 and "1 fault, none of which counts" in " ".join(answer.stdout.split())
    assert "--ignore is KIND=reason" in refusal("audit", "--ignore", "norms")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("[tool.depthlaw.audit]\nlayer = [2]\n", "[tool.depthlaw.audit]: there is no key layer (allowed: factory, "),
        (
            "[tool.depthlaw.audit]\nlayers = '2,4'\n",
            "layers is '2,4'; allowed is a list, such as [2, 4], of which each is a whole number from 1 to 4,096",
        ),
        ("[tool.depthlaw.audit]\nlayers = [0]\n", "layers is [0]; allowed is a list"),
        ("[tool.depthlaw.audit]\nlayers = []\n", "layers is []; allowed is a list"),
        ("[tool.depthlaw.audit]\nseeds = 0\n", "seeds is 0; allowed is a whole number from 1 to 1,000"),
        ("[tool.depthlaw.audit]\nscheme = 4\n", "scheme is 4; allowed is a text in quotes"),
        ("[tool.depthlaw.audit]\nignore = ['norms']\n", "ignore is ['norms']; allowed is a reason for each kind"),
        ("[[tool.depthlaw.audit]]\nhf = 'gpt2'\n[[tool.depthlaw.audit]]\nhf = 2\n", "[[tool.depthlaw.audit]] 2 of 2: "),
        ("[tool.depthlaw.audit]\nhf = 'gpt2'\nscheme = 'pre'\n", "[tool.depthlaw.audit]: scheme: unknown scheme 'pre'"),
        ("[tool.depthlaw.audit]\nhf = 'gpt2'\nrecipe = 'gpt'\n", "[tool.depthlaw.audit]: recipe: unknown recipe 'gpt'"),
        ("[tool.depthlaw.audit]\nhf = 'gpt2'\noptimizer = 'x'\n", "[tool.depthlaw.audit]: optimizer is one of sgd,"),
        ("[tool.depthlaw.audit]\nhf = 'gpt2'\nfactory = 'a:b'\n", "[tool.depthlaw.audit]: it names both, a factory"),
        ("[tool.depthlaw.audit]\nfactory = 'a'\n", "[tool.depthlaw.audit]: factory is MODULE:NAME, such as"),
        ("[tool.depthlaw.audit]\nfactory = 'none:b'\n", "[tool.depthlaw.audit]: factory: there is no module none"),
        ("[tool.depthlaw.audit]\nhf = 'gpt2'\nbaseline = 'no'\n", "[tool.depthlaw.audit]: baseline: there is no /"),
        ("[tool.depthlaw]\nfactory = 'a:b'\n", "[tool.depthlaw] has [tool.depthlaw.audit], or several"),
        ("[tool.depthlaw]\naudit = 'a:b'\n", "[tool.depthlaw] has [tool.depthlaw.audit], or several"),
        (
            "[tool.depthlaw.audit]\nignore = {norms = ''}\n",
            "ignore is {'norms': ''}; allowed is a reason for each kind of fault, such as {norms = \"the head has",
        ),
        ("[tool.depthlaw.audit]\n", "[tool.depthlaw.audit]: it names neither, a factory and hf: name one"),
        ("[tool\n", "cannot be read"),
        ("", "give MODULE:FACTORY or --hf NAME"),
    ],
)
def test_what_cannot_be_read_of_pyproject_is_refused(
    content: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pyproject.toml"
    path.write_text(content, encoding="utf-8")
    answer = refusal("audit")
    assert line in answer and (str(path) in answer or not content)


def test_several_audits_are_one_answer(here: Path) -> None:
    (path,) = here.glob("mymodel*.py")
    one = f'[[tool.depthlaw.audit]]\nfactory = "{path.stem}:build"\nlayers = [1]\nseeds = 1\n'
    Path("pyproject.toml").write_text(f'{one}scheme = "pre-ln"\n{one}scheme = "post-ln"\n', encoding="utf-8")
    answer = depthlaw("audit", "--json")
    assert answer.returncode == 1
    assert [found["scheme"] for found in json.loads(answer.stdout)["audits"]] == ["pre-ln", "post-ln"]
    assert "--plot draws one audit" in refusal("audit", "--plot", "it.svg")
